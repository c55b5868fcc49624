"""What is given away: the distributions, the documentation as a site, the reference."""
