//! The checksum of a payload: CRC-32, bit by bit, which keeps a processor busy.

/// The polynomial of IEEE 802.3, its bits reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;

pub(crate) fn checksum(payload: &[u8]) -> u32 {
    let of_byte = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (POLYNOMIAL & (sum & 1).wrapping_neg()))
    };
    !payload.iter().fold(u32::MAX, of_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(checksum(b""), 0);
    }
}
