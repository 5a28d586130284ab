//! The table of the experiments, then and now, stands on three pages: whole in figures.md and in README.md of the reports, in
//! part in README.md of the project. All three say what figures.md says.

/// The rows of the table whose head begins with this cell: the text of each cell.
fn table<'a>(page: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let is_row = |line: &&str| line.starts_with('|');
    let lines = page
        .lines()
        .skip_while(|line| !line.starts_with(&format!("| {head} |")));
    let cells = |line: &'a str| line.trim_matches('|').split('|').map(str::trim).collect();
    lines.skip(2).take_while(is_row).map(cells).collect()
}

#[test]
fn the_experiments_then_and_now_are_one_table() {
    let figures = table(include_str!("../../reports/figures.md"), "experiment");
    let reports = table(include_str!("../../reports/README.md"), "experiment");
    let readme = table(include_str!("../../../README.md"), "experiment");
    assert!(figures.len() >= 13, "{figures:?}");
    assert_eq!(figures, reports);
    assert!(readme.len() >= 5, "{readme:?}");
    for row in readme {
        let [name, rate, cpu] = row[..] else {
            panic!("three cells: {row:?}");
        };
        // README.md has the published rate without the machine.
        let is_there = figures
            .iter()
            .any(|of| of[1].starts_with(rate) && !rate.is_empty() && of[2] == cpu);
        assert!(
            is_there,
            "{name}: {rate} and {cpu} are not together in figures.md"
        );
    }
}
