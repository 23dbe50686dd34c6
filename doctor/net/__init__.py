"""What hosts found when they tried their network: the schedule, the matrix of attempts, and the causes of its failures.

Everything here is pure: it reads no file, opens no connection, and asks no clock.
"""
