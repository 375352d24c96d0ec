#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>

#include "comm/local/local_group.h"
#include "comm/signature.h"

namespace ddp::comm {

std::string LocalCore::missing(const AsyncWork& work) { return hub_->missing(work); }

void LocalCore::on_death(const Failure& failure) { hub_->die(failure); }

std::chrono::milliseconds LocalCore::look_every() const {
  return std::chrono::milliseconds(hub_->on_device() ? 50 : 0);
}

void LocalCore::bury(std::vector<std::shared_ptr<AsyncWork>> works) {
  if (!hub_->on_device()) return;
  const std::lock_guard lock(buried_mutex_);
  buried_.insert(buried_.end(), std::make_move_iterator(works.begin()), std::make_move_iterator(works.end()));
}

void LocalCore::let_go() noexcept {
  constexpr std::chrono::seconds kPatience{5};
  std::vector<std::shared_ptr<AsyncWork>> buried;
  {
    const std::lock_guard lock(buried_mutex_);
    buried.swap(buried_);
  }
  const auto until = Clock::now() + kPatience;
  for (const auto& work : buried) {
    while (!static_cast<const StreamWork&>(*work).released() && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

LocalHub::LocalHub(std::vector<Device> devices, std::chrono::milliseconds timeout)
    : devices_(std::move(devices)), timeout_(timeout), cores_(devices_.size()) {}

void LocalHub::attach(int rank, const std::shared_ptr<LocalCore>& core) {
  const std::lock_guard lock(mutex_);
  cores_[static_cast<std::size_t>(rank)] = core;
}

void LocalHub::arrive(int rank, const std::shared_ptr<AsyncWork>& work) {
  if (is_point_to_point(work->collective().kind)) {
    match_message(rank, work);
  } else {
    meet(rank, work);
  }
}

void LocalHub::meet(int rank, const std::shared_ptr<AsyncWork>& work) {
  const Collective& mine = work->collective();
  std::vector<std::shared_ptr<AsyncWork>> works;
  std::string difference;
  {
    const std::lock_guard lock(mutex_);
    const MeetingKey key{mine.options.lane, mine.sequence};
    Meeting& meeting = meetings_[key];
    meeting.works.resize(devices_.size());
    meeting.works[static_cast<std::size_t>(rank)] = work;
    ++meeting.arrived;
    for (int other = 0; other < size(); ++other) {
      const auto& theirs = meeting.works[static_cast<std::size_t>(other)];
      if (other == rank || !theirs || signature_hash(theirs->collective()) == signature_hash(mine)) continue;
      difference = concat("the ranks differ: rank ", other, " called ", describe(theirs->collective()), ", rank ", rank,
                          " called ", describe(mine));
      break;
    }
    if (difference.empty() && meeting.arrived < size()) return;
    works = std::move(meeting.works);
    meetings_.erase(key);
  }
  std::erase(works, nullptr);
  finish(works, difference);
}

void LocalHub::match_message(int rank, const std::shared_ptr<AsyncWork>& work) {
  const Collective& mine = work->collective();
  const bool sending = mine.kind == CollectiveKind::send;
  const PairKey key = sending ? PairKey{rank, mine.root, mine.tag} : PairKey{mine.root, rank, mine.tag};
  std::shared_ptr<AsyncWork> other;
  {
    const std::lock_guard lock(mutex_);
    Mailbox& box = mailboxes_[key];
    auto& waiting = sending ? box.recvs : box.sends;
    if (waiting.empty()) {
      (sending ? box.sends : box.recvs).push_back(work);
      return;
    }
    other = std::move(waiting.front());
    waiting.erase(waiting.begin());
    if (box.sends.empty() && box.recvs.empty()) mailboxes_.erase(key);
  }
  const auto& send = sending ? work : other;
  const auto& recv = sending ? other : work;
  const auto [from, to, tag] = key;
  std::string difference;
  if (signature_hash(send->collective()) != signature_hash(recv->collective())) {
    difference = concat("the ranks differ: rank ", from, " sent a ", describe(send->collective()), ", rank ", to,
                        " expected a ", describe(recv->collective()));
  }
  finish({send, recv}, difference);
}

void LocalHub::finish(const std::vector<std::shared_ptr<AsyncWork>>& works, const std::string& failure) {
  if (!failure.empty()) {
    die({.timeout = false, .text = failure});
    // The works may be off the cores' lists already, when a group died meanwhile.
    for (const auto& work : works) work->fail({.timeout = false, .text = failure});
    return;
  }
  if (on_device()) {
    finish_on_device(works);
    return;
  }
  // All, without a short cut: each must be told to end.
  std::size_t begun = 0;
  for (const auto& work : works) begun += work->begin() ? 1 : 0;
  if (begun == works.size()) {
    if (is_point_to_point(works.front()->collective().kind)) {
      const Tensor& from = works[0]->collective().inputs.front();
      std::memcpy(works[1]->collective().outputs.front().data(), from.data(), static_cast<std::size_t>(from.nbytes()));
    } else {
      run_local(works);
    }
  }
  for (const auto& work : works) {
    if (begun < works.size()) work->fail({.timeout = false, .text = "the group was aborted meanwhile"});
    if (const auto core = work->core()) {
      core->finish(*work);
    } else {
      work->end();
    }
  }
}

StreamView LocalHub::stream_of(const Collective& collective) {
  const int key = is_point_to_point(collective.kind) ? -1 : collective.options.lane;
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(key);
  if (found != streams_.end()) return found->second;
  return streams_.emplace(key, Stream(devices_.front(), StreamPriority::high)).first->second;
}

void LocalHub::finish_on_device(const std::vector<std::shared_ptr<AsyncWork>>& works) {
  std::string problem;
  if (std::ranges::any_of(works, [](const auto& work) { return work->is_completed(); })) {
    problem = "the group was aborted meanwhile";
  } else {
    try {
      run_on_device(works, stream_of(works.front()->collective()));
      return;
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  die({.timeout = false, .text = problem});
  for (const auto& work : works) work->fail({.timeout = false, .text = problem});
}

std::string LocalHub::missing(const AsyncWork& work) {
  const Collective& mine = work.collective();
  if (is_point_to_point(mine.kind)) return concat("; not arrived: rank ", mine.root);
  std::string absent;
  const std::lock_guard lock(mutex_);
  const auto found = meetings_.find({mine.options.lane, mine.sequence});
  if (found == meetings_.end()) return {};
  for (int rank = 0; rank < size(); ++rank) {
    if (!found->second.works[static_cast<std::size_t>(rank)])
      absent += concat(absent.empty() ? "" : ", ", "rank ", rank);
  }
  return concat("; not arrived: ", absent);
}

void LocalHub::die(const Failure& failure) {
  std::vector<std::shared_ptr<LocalCore>> cores;
  {
    const std::lock_guard lock(mutex_);
    meetings_.clear();
    mailboxes_.clear();
    for (const auto& core : cores_) cores.push_back(core.lock());
  }
  for (const auto& core : cores) {
    if (core) core->die({.timeout = false, .text = failure.text});
  }
}

std::shared_ptr<LocalHub> LocalHub::child(std::uint64_t call, int color, const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  auto& slot = children_[{call, color}];
  auto hub = slot.lock();
  if (!hub) {
    std::vector<Device> devices;
    devices.reserve(members.size());
    for (const int member : members) devices.push_back(device(member));
    hub = std::make_shared<LocalHub>(devices, timeout_);
    slot = hub;
  }
  return hub;
}

}  // namespace ddp::comm
