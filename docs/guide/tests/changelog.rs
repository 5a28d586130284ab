//! CHANGELOG.md can be read: entries are short, and those of a version that was cut stand in its groups.

/// Words of an entry.
const MOST: usize = 25;

#[test]
fn entries_are_short_and_stand_in_groups() {
    let page = include_str!("../../../CHANGELOG.md");
    let (mut version, mut group) = ("", "");
    let (mut entries, mut wrong) = (0, Vec::new());
    let mut entry = String::new();
    // One more line, so that the last entry ends as the others do.
    for line in page.lines().chain([""]) {
        if line.starts_with("  ") {
            entry.push_str(line);
            continue;
        }
        let words = entry.split_whitespace().skip(1).count();
        if words > MOST {
            wrong.push(format!("{words} words: {entry}"));
        }
        entry.clear();
        if let Some(name) = line.strip_prefix("## ") {
            (version, group) = (name, "");
        } else if let Some(name) = line.strip_prefix("### ") {
            group = name;
        } else if line.starts_with("- ") {
            entries += 1;
            entry.push_str(line);
            if version != "Unreleased" && group.is_empty() {
                wrong.push(format!("{version}: not in a group: {line}"));
            }
        }
    }
    assert!(
        page.contains("\n## Unreleased\n"),
        "new entries have no place"
    );
    assert!(entries > 100, "only {entries} entries were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
