//! Worked bytes of a page: blocks of text whose lines say in hexadecimal digits what goes to the server (`>`) and what comes back
//! (`<`).

/// A conversation of the page.
pub(crate) struct Worked {
    /// The words behind the block's opening.
    pub(crate) names: Vec<String>,
    pub(crate) sent: Vec<u8>,
    pub(crate) heard: Vec<u8>,
}

/// All of a page, in order.
///
/// # Panics
/// If a line of such a block is something else.
pub(crate) fn worked(page: &str) -> Vec<Worked> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let blocks = blocks.filter(|block| block.starts_with("text"));
    blocks.map(of_block).collect()
}

fn of_block(block: &str) -> Worked {
    let (opening, lines) = block.split_once('\n').expect("lines of a block");
    let names = opening.split(' ').skip(1).map(str::to_owned).collect();
    let (mut sent, mut heard) = (Vec::new(), Vec::new());
    for line in lines.lines() {
        let (side, digits) = line.split_at(1);
        let to = match side {
            ">" => &mut sent,
            "<" => &mut heard,
            other => panic!("{other:?} is neither side, in {line:?}"),
        };
        let byte = |digits| u8::from_str_radix(digits, 16).expect("two digits");
        to.extend(digits.split_whitespace().map(byte));
    }
    Worked { names, sent, heard }
}
