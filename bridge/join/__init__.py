"""Which op does each activity belong to? Arrays in, arrays out: no files, no SQL, no frames to print."""
