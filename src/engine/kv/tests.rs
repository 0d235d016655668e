use std::sync::Arc;

use proptest::prelude::*;

use super::{Foresight, FutureUses, Generated, KvCache};
use crate::simulation::{SimDuration, SimTime};
use crate::workload::prefix::PrefixTree;
use crate::workload::{Prompt, Request, RequestId, Workload};

const BLOCK_SIZE: u32 = 4;

/// Prompts of whole blocks, each block named by an id, in the order in which they come.
fn workload(prompts: &[Vec<u32>]) -> Arc<Workload> {
    let mut workload = Workload::default();
    for (number, ids) in prompts.iter().enumerate() {
        let first_chunk = workload.chunk_ids.len() as u32;
        let chunks = ids.len() as u32;
        workload.chunk_ids.extend(ids);
        workload.session_starts.push(RequestId(number as u32));
        workload.requests.push(Request {
            arrival: SimTime::from_ns(number as u64),
            delay: SimDuration::ZERO,
            input_length: chunks * BLOCK_SIZE,
            output_length: 1,
            prompt: Prompt { first_chunk, chunks, tokens_per_chunk: BLOCK_SIZE },
            session: number as u32,
            turn: 0,
            next_turn: None,
            dp_rank: None,
            name: None,
        });
    }
    Arc::new(workload)
}

/// Blocks found when the prompts are served one after the other, each alone.
fn hits(prompts: &[Vec<u32>], capacity: u32, foresight: bool) -> u32 {
    let workload = workload(prompts);
    let tree = PrefixTree::build(&workload, BLOCK_SIZE);
    let mut kv = KvCache::new(capacity, BLOCK_SIZE, true, 0);
    if foresight {
        kv.evict_by(Foresight::new(Arc::new(FutureUses::of(&workload, &tree))));
    }
    let mut path = Vec::new();
    let mut hits = 0;
    for (number, ids) in prompts.iter().enumerate() {
        let request = RequestId(number as u32);
        let tokens = ids.len() as u32 * BLOCK_SIZE;
        kv.awaits(request);
        tree.path(request, &mut path);
        hits += kv.look_up(&path, u32::MAX).blocks;
        let mut hold = kv.take_match();
        kv.is_served(request);
        assert!(kv.grow(&mut hold, tokens), "a prompt alone fits");
        kv.publish_prompt(&mut hold, &path, tokens);
        kv.release(&mut hold, tokens, Generated::Forgotten);
    }
    hits
}

/// The same, block by block: when room is needed, the last block of the cached prefix whose next use is farthest goes.
fn hits_block_by_block(prompts: &[Vec<u32>], capacity: usize) -> u32 {
    let mut cached: Vec<&[u32]> = Vec::new();
    let mut hits = 0;
    for (number, ids) in prompts.iter().enumerate() {
        let prefixes: Vec<&[u32]> = (1..=ids.len()).map(|end| &ids[..end]).collect();
        let found = prefixes.iter().take_while(|prefix| cached.contains(prefix)).count();
        hits += found as u32;
        let next_use =
            |block: &[u32]| prompts[number + 1..].iter().position(|later| later.starts_with(block));
        for block in &prefixes[found..] {
            if cached.len() == capacity {
                let free = |block: &&[u32]| !prefixes[..found].contains(block);
                let victim = cached
                    .iter()
                    .filter(|block| free(block))
                    // Those of this prompt that have just come in are held.
                    .filter(|block| !prefixes.contains(block))
                    .max_by_key(|block| (next_use(block).unwrap_or(usize::MAX), block.len()))
                    .copied();
                let victim = victim.expect("a prompt alone fits");
                cached.retain(|block| *block != victim);
            }
            cached.push(block);
        }
    }
    hits
}

#[test]
fn what_is_needed_last_goes_first() {
    // Three prompts in turn and room for two: by age, each has gone when it comes again.
    let turns: Vec<Vec<u32>> = (0..12).map(|turn| vec![turn % 3, 10 + turn % 3]).collect();
    assert_eq!(hits(&turns, 4, false), 0);
    assert!(hits(&turns, 4, true) >= 8);
}

proptest! {
    #[test]
    fn foresight_evicts_as_block_by_block(
        prompts in prop::collection::vec(prop::collection::vec(0_u32..3, 1..5), 1..40),
        capacity in 4_u32..12,
    ) {
        let expected = hits_block_by_block(&prompts, capacity as usize);
        prop_assert_eq!(hits(&prompts, capacity, true), expected);
    }
}
