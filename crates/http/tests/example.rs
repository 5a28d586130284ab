//! The example does what it says.

#[allow(dead_code, reason = "its program is not run here")]
#[path = "../examples/notes.rs"]
mod notes;

#[test]
fn notes_are_kept_and_letters_counted() {
    notes::self_test().unwrap();
}
