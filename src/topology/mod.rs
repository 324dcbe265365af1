//! YAML to checked types, with diagnostics that name the place and the mend.
