"""What an annotated process writes of itself: details of its calls and, in a session, their times."""
