//! The checksum of a file: CRC-64 with the polynomial of Jones, reflected, from 0.

/// The polynomial, its bits reversed.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// The checksum of what `crc` is of, and of `bytes` behind it.
pub(crate) fn append(crc: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(crc, |crc, byte| {
        TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8
    })
}

#[test]
fn it_is_that_of_the_catalogue() {
    assert_eq!(append(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
}
