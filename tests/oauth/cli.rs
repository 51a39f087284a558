//! `colibri auth`, typed by a person.
