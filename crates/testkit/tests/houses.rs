//! Arrows between files point down only: no file imports one that, by whatever way, imports it.

use std::fs;
use std::path::Path;

use tidewire_testkit::imports::Imports;

/// The crates that still have circles, with the files of the largest one. A number here may only become smaller; a crate
/// that is not here has none.
const LARGEST: &[(&str, usize)] = &[("kv", 61)];

#[test]
fn no_file_imports_one_that_imports_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut files, mut arrows, mut wrong) = (0, 0, Vec::new());
    for entry in fs::read_dir(&crates).expect("the crates") {
        let path = entry.expect("an entry").path();
        let sources = path.join("src");
        if !sources.is_dir() {
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy();
        let imports = Imports::of(&sources);
        files += imports.files();
        arrows += imports.arrows();
        let knots = imports.knots();
        let largest = knots.first().map_or(0, Vec::len);
        let allowed = LARGEST
            .iter()
            .find(|(of, _)| *of == name)
            .map_or(0, |(_, size)| *size);
        if largest > allowed {
            wrong.push(format!(
                "{name}: {largest} files import each other in a circle, {allowed} are allowed: {:#?}\n{:#?}",
                knots[0],
                imports.arrows_on_circles()
            ));
        } else if largest < allowed {
            wrong.push(format!(
                "{name}: its largest circle has {largest} files now; write that into LARGEST"
            ));
        }
    }
    assert!(
        files > 700 && arrows > 3000,
        "{files} files, {arrows} arrows were read"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
