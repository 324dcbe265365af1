//! One experiment: prepare, launch, load, faults, settle; the dispatcher that writes the timeline.
