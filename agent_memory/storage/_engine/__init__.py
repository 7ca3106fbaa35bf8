"""Mechanisms of the stores: waiting across threads and loops, queues, and appending."""
