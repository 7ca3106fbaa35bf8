"""What the stores share: waiting across threads and loops, queues, and appending."""
