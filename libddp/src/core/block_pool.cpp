#include "core/block_pool.h"

#include <algorithm>

namespace ddp::core {
namespace {

bool is_done(const BlockPool::Pending& block) noexcept {
  try {
    return std::all_of(block.events.begin(), block.events.end(),
                       [](const Event& event) { return event.is_complete(); });
  } catch (...) {
    return false;  // the device is in trouble; the block stays where it is
  }
}

}  // namespace

std::optional<BlockPool::Pending> BlockPool::take_pending(std::size_t index) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(pending_.begin(), pending_.end(), [index](const Pending& block) { return block.index == index; });
  if (found == pending_.end()) return std::nullopt;
  Pending block = std::move(*found);
  pending_.erase(found);
  note_handed_out();
  return block;
}

void BlockPool::give_pending(Pending&& block) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(std::move(block));
}

void BlockPool::give_pending_back(Pending&& block) {
  const std::lock_guard lock(mutex_);
  pending_.insert(pending_.begin(), std::move(block));
  handed_out_.store(handed_out() - 1, std::memory_order_relaxed);
}

void BlockPool::expect(std::size_t index) {
  const std::lock_guard lock(mutex_);
  std::vector<void*>& list = free_[index];
  const std::size_t known = known_[index] + 1;
  if (known > list.capacity()) list.reserve(std::max(known, 2 * list.capacity()));
  known_[index] = known;
  note_handed_out();
}

std::vector<std::pair<std::size_t, void*>> BlockPool::take_all() {
  std::vector<Pending> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(pending_);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (is_done(waiting[i])) {
      give(waiting[i].index, waiting[i].pointer);
    } else {
      if (kept != i) waiting[kept] = std::move(waiting[i]);
      ++kept;
    }
  }
  waiting.resize(kept);
  const std::lock_guard lock(mutex_);
  if (pending_.empty()) {
    pending_.swap(waiting);
  } else {
    pending_.insert(pending_.begin(), std::make_move_iterator(waiting.begin()), std::make_move_iterator(waiting.end()));
  }
  std::size_t count = 0;
  for (const auto& list : free_) count += list.size();
  std::vector<std::pair<std::size_t, void*>> blocks;
  blocks.reserve(count);
  for (std::size_t index = 0; index < kSizeClasses; ++index) {
    for (void* pointer : free_[index]) blocks.emplace_back(index, pointer);
    known_[index] -= free_[index].size();
    free_[index].clear();
  }
  return blocks;
}

}  // namespace ddp::core
