//! Trigger and action become a schedule.
