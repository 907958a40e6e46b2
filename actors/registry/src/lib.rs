//! Finds, starts, watches, restarts, quarantines and passivates sessions.
