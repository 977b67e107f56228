//! name_table
