"""What is to be said first: advice on the program, trust in the capture, the summary, the owner of an activity."""
