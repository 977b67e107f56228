//! Changes of inputs: bytes, words of the target's own, pieces of other inputs. The same seed gives the same inputs.

/// A source of changed inputs.
pub struct Mutator {
    state: u64,
    words: Vec<&'static str>,
}

impl Mutator {
    pub fn new(seed: u64, words: &'static str) -> Self {
        let words = words.lines().filter(|word| !word.is_empty()).collect();
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, words }
    }

    /// Xorshift (Marsaglia).
    fn number(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// A number below `bound`, or 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() >> 16) as usize % bound.max(1)
    }

    /// So many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.number() >> 16) as u8).collect()
    }

    /// An input of the corpus with one to eight changes.
    pub fn next(&mut self, corpus: &[&[u8]], longest: usize) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].to_vec();
        for _ in 0..=self.below(8) {
            let at = self.below(input.len() + 1);
            match self.below(8) {
                0 => {
                    let byte = self.number() as u8;
                    input.insert(at, byte);
                }
                1 | 2 => {
                    let bit = 1 << self.below(8);
                    input.get_mut(at).into_iter().for_each(|b| *b ^= bit);
                }
                3 => {
                    let end = at + self.below(16).min(input.len() - at);
                    input.drain(at..end);
                }
                4 if !self.words.is_empty() => {
                    let at_word = self.below(self.words.len());
                    let word = self.words[at_word];
                    input.splice(at..at, word.bytes());
                }
                5 => {
                    let end = at + self.below(32).min(input.len() - at);
                    let copy = input[at..end].to_vec();
                    let to = self.below(input.len() + 1);
                    input.splice(to..to, copy);
                }
                6 => {
                    let other = corpus[self.below(corpus.len())];
                    let from = self.below(other.len() + 1);
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
                _ => {
                    let special = [0, 1, 0x7f, 0x80, 0xff, b'"', b'\n', b'%', b'*', b'{'][self.below(10)];
                    input.get_mut(at).into_iter().for_each(|b| *b = special);
                }
            }
        }
        input.truncate(longest);
        input
    }
}
