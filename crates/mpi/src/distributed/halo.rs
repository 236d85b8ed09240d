//! Elements of a distributed vector that other ranks need: [`Halo`].

use std::ops::Range;

use sparsebatch_formats::Scalar;

use super::Partition;
use crate::transport::Message;
use crate::{Failure, MpiError, Ranks};

/// Which elements of its own a rank sends to others before a product, and which it receives.
#[derive(Debug)]
pub(super) struct Halo {
    /// Own elements in the order in which they are sent, by their place among the own ones.
    sent: Vec<u32>,
    to: Vec<Message>,
    from: Vec<Message>,
    /// The ranks that this one exchanges elements with, ascending.
    partners: Vec<usize>,
    send: Vec<u8>,
    receive: Vec<u8>,
}

impl Halo {
    /// Tells every rank which of its elements this rank needs: those at the positions `needed`,
    /// ascending, none of this rank. Each rank sends one list to each rank that has some of them.
    ///
    /// # Errors
    /// [`MpiError::Rank`] where lists and partition contradict each other.
    pub(super) fn new<T: Scalar>(
        ranks: &Ranks,
        columns: &Partition,
        needed: &[i32],
    ) -> Result<Self, MpiError> {
        let mut lists: Vec<Vec<u8>> = vec![Vec::new(); ranks.size()];
        for &position in needed {
            let owner = columns.rank_of(position as usize);
            let place = position as usize - columns.range(owner).start;
            lists[owner].extend_from_slice(&(place as u32).to_le_bytes());
        }
        let received: Vec<usize> = lists.iter().map(|list| list.len() / 4).collect();
        let asked = ranks.transport().all_to_all(lists);
        let own = columns.range(ranks.rank()).len();
        let mut sent: Vec<u32> = Vec::new();
        let mut counts = Vec::with_capacity(asked.len());
        for list in &asked {
            let (places, rest) = list.as_chunks::<4>();
            sent.extend(places.iter().map(|&place| u32::from_le_bytes(place)));
            counts.push(places.len());
            debug_assert!(rest.is_empty(), "lists of 32-bit numbers");
        }
        let is_valid = sent.iter().all(|&place| (place as usize) < own);
        ranks.agree(match is_valid {
            true => Ok(()),
            false => {
                Err(Failure::internal("another rank asks for elements beyond those of this one"))
            }
        })?;
        let (to, from) = (messages::<T>(&counts), messages::<T>(&received));
        let bytes = |messages: &[Message]| messages.last().map_or(0, |(_, part)| part.end);
        let (send, receive) = (vec![0; bytes(&to)], vec![0; bytes(&from)]);
        let mut partners: Vec<usize> = to.iter().chain(&from).map(|(rank, _)| *rank).collect();
        partners.sort_unstable();
        partners.dedup();
        Ok(Self { sent, to, from, partners, send, receive })
    }

    /// The number of elements that are sent, those that go to several ranks as often.
    pub(super) fn sent(&self) -> usize {
        self.sent.len()
    }

    /// Which own elements are sent, in their order.
    pub(super) fn places(&self) -> &[u32] {
        &self.sent
    }

    /// The number of ranks that this one exchanges elements with.
    pub(super) fn neighbours(&self) -> usize {
        self.partners.len()
    }

    /// Sends elements of `x`, receives those of other ranks, and meanwhile does something else.
    pub(super) fn exchange<T: Scalar>(
        &mut self,
        ranks: &Ranks,
        x: &[T],
        halo: &mut [T],
        meanwhile: &mut dyn FnMut(),
    ) {
        let size = size_of::<T>();
        for (bytes, &place) in self.send.chunks_exact_mut(size).zip(&self.sent) {
            to_bytes(x[place as usize], bytes);
        }
        let Self { to, from, send, receive, .. } = self;
        ranks.transport().exchange(to, send, from, receive, meanwhile);
        for (element, bytes) in halo.iter_mut().zip(self.receive.chunks_exact(size)) {
            *element = from_bytes(bytes);
        }
    }

    /// As [`Halo::exchange`], of elements that are bytes already, those to send and those to receive
    /// in their order.
    pub(super) fn exchange_bytes(&self, ranks: &Ranks, sent: &[u8], received: &mut [u8]) {
        ranks.transport().exchange(&self.to, sent, &self.from, received, &mut || ());
    }

    /// The ranks that this one exchanges elements with, ascending.
    pub(super) fn partners(&self) -> &[usize] {
        &self.partners
    }

    /// The ranks that elements come from, and which of the received bytes are theirs.
    pub(super) fn sources(&self) -> &[Message] {
        &self.from
    }

    /// Where each of the other ranks finds its elements among the bytes that it is sent.
    pub(super) fn offsets(&self, ranks: &Ranks) -> Vec<Option<Range<usize>>> {
        let mut own = vec![Vec::new(); ranks.size()];
        for (rank, part) in &self.to {
            own[*rank] = [part.start as u64, part.end as u64].map(u64::to_le_bytes).concat();
        }
        let all = ranks.transport().all_to_all(own);
        let part = |bytes: &Vec<u8>| match *bytes.as_chunks::<8>().0 {
            [start, end] => Some([start, end].map(|number| u64::from_le_bytes(number) as usize)),
            _ => None,
        };
        all.iter().map(|bytes| part(bytes).map(|[start, end]| start..end)).collect()
    }

    /// Tells the partners whether elements of this rank are packed, and waits until all have told
    /// so. Returns the places of those sources that have failed.
    pub(super) fn exchange_words(&self, ranks: &Ranks, is_packed: bool) -> Vec<usize> {
        let partners = &self.partners;
        let word = [u8::from(is_packed)];
        let to: Vec<Message> = partners.iter().map(|&rank| (rank, 0..1)).collect();
        let places = partners.iter().enumerate();
        let from: Vec<Message> = places.map(|(place, &rank)| (rank, place..place + 1)).collect();
        let mut words = vec![0; partners.len()];
        ranks.transport().exchange(&to, &word, &from, &mut words, &mut || ());
        let has_failed =
            |rank: usize| partners.binary_search(&rank).is_ok_and(|place| words[place] == 0);
        let sources = self.from.iter().enumerate();
        sources.filter(|(_, (rank, _))| has_failed(*rank)).map(|(place, _)| place).collect()
    }

    /// Sends NaN in the place of all elements, where a rank has failed and others wait.
    pub(super) fn exchange_nothing(&mut self, ranks: &Ranks) {
        self.send.fill(0xff);
        let Self { to, from, send, receive, .. } = self;
        ranks.transport().exchange(to, send, from, receive, &mut || ());
    }
}

/// Messages of some numbers of elements to or from each rank, one after the other in a buffer.
fn messages<T>(counts: &[usize]) -> Vec<Message> {
    let mut end = 0;
    let part = |(rank, &count): (usize, &usize)| {
        let start = end;
        end += count * size_of::<T>();
        (count > 0).then_some((rank, start..end))
    };
    counts.iter().enumerate().filter_map(part).collect()
}

fn to_bytes<T: Scalar>(value: T, bytes: &mut [u8]) {
    match size_of::<T>() {
        4 => bytes.copy_from_slice(&(value.to_f64() as f32).to_le_bytes()),
        _ => bytes.copy_from_slice(&value.to_f64().to_le_bytes()),
    }
}

fn from_bytes<T: Scalar>(bytes: &[u8]) -> T {
    let value = match *bytes {
        [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => f64::NAN,
    };
    T::from_f64(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_travel_exactly() {
        for value in [0.1f32, -0.0, f32::INFINITY, f32::MIN_POSITIVE / 8.0] {
            let mut bytes = [0; 4];
            to_bytes(value, &mut bytes);
            assert_eq!(from_bytes::<f32>(&bytes).to_bits(), value.to_bits());
        }
        let mut bytes = [0; 8];
        to_bytes(-0.1f64, &mut bytes);
        assert_eq!(from_bytes::<f64>(&bytes), -0.1);
        to_bytes(f64::NAN, &mut bytes);
        assert!(from_bytes::<f64>(&bytes).is_nan());
    }

    #[test]
    fn each_rank_sends_what_others_ask_for() {
        let columns = Partition::even(7, 3);

        let halos = Ranks::on_threads(3, |ranks| {
            // Rank 0 needs all others, rank 1 one of each, rank 2 nothing.
            let needed: &[i32] = [&[3, 4, 5, 6][..], &[0, 6], &[]][ranks.rank()];
            let mut halo = Halo::new::<f64>(ranks, &columns, needed).unwrap();
            let x: Vec<f64> = columns.range(ranks.rank()).map(|at| at as f64).collect();
            let mut received = vec![0.0; needed.len()];
            let mut meanwhile = 0;
            halo.exchange(ranks, &x, &mut received, &mut || meanwhile += 1);
            (received, halo.sent(), halo.neighbours(), meanwhile)
        });

        assert_eq!(halos[0], (vec![3.0, 4.0, 5.0, 6.0], 1, 2, 1));
        assert_eq!(halos[1], (vec![0.0, 6.0], 2, 2, 1));
        assert_eq!(halos[2], (vec![], 3, 2, 1));
    }
}
