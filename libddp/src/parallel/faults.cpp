#include "parallel/faults.h"

#include <algorithm>

#include "parallel/wire.h"

namespace ddp::parallel {
namespace {

constexpr const char* kPrefix = "the gradients of this backward must not be used: ";

std::string rank_list(const std::vector<std::size_t>& ranks, std::size_t size) {
  if (ranks.size() == size && size > 1) return concat("all ", size, " ranks");
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

using Names = std::vector<std::string> PassAccount::*;

// Every name in that list of any rank, in order of first appearance.
std::vector<std::string> all_names(const std::vector<PassAccount>& accounts, Names list) {
  std::vector<std::string> names;
  for (const PassAccount& account : accounts) {
    for (const std::string& name : account.*list) {
      if (!contains(names, name)) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::size_t> ranks_with(const std::vector<PassAccount>& accounts, Names list, const std::string& name) {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < accounts.size(); ++rank) {
    if (contains(accounts[rank].*list, name)) ranks.push_back(rank);
  }
  return ranks;
}

// "'a', 'b' <what> rank 1; 'c' <what> all 2 ranks": names that concern the same ranks stand together.
void add_faults(std::vector<std::string>& parts, const std::vector<PassAccount>& accounts, Names list,
                const std::string& what) {
  std::vector<std::pair<std::vector<std::size_t>, std::string>> groups;
  for (const std::string& name : all_names(accounts, list)) {
    std::vector<std::size_t> ranks = ranks_with(accounts, list, name);
    auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == ranks; });
    if (at == groups.end()) {
      groups.emplace_back(std::move(ranks), concat("'", name, "'"));
    } else {
      at->second += concat(", '", name, "'");
    }
  }
  for (const auto& [ranks, names] : groups) {
    parts.push_back(concat(names, " ", what, " ", rank_list(ranks, accounts.size())));
  }
}

}  // namespace

comm::Bytes encode(const PassAccount& account) {
  ByteWriter out;
  out.put(account.pass);
  out.put(account.latest);
  out.put(account.plan_hash);
  out.put_texts(account.missing);
  out.put_texts(account.twice);
  out.put_texts(account.unexpected);
  out.put_texts(account.inactive);
  return out.bytes();
}

PassAccount decode_account(const comm::Bytes& bytes) {
  ByteReader in(bytes);
  PassAccount account;
  account.pass = in.get<std::uint64_t>();
  account.latest = in.get<std::uint64_t>();
  account.plan_hash = in.get<std::uint64_t>();
  account.missing = in.get_texts();
  account.twice = in.get_texts();
  account.unexpected = in.get_texts();
  account.inactive = in.get_texts();
  return account;
}

std::string describe(const std::vector<PassAccount>& accounts) {
  std::vector<std::string> parts;
  add_faults(parts, accounts, &PassAccount::missing, "got no gradient on");
  add_faults(parts, accounts, &PassAccount::twice, "became ready twice in one pass on");
  add_faults(parts, accounts, &PassAccount::unexpected, "got a gradient though frozen when the pass began on");
  for (const std::string& name : all_names(accounts, &PassAccount::inactive)) {
    const std::vector<std::size_t> ranks = ranks_with(accounts, &PassAccount::inactive, name);
    if (ranks.size() == accounts.size()) continue;
    parts.push_back(concat("'", name, "' is frozen (requires_grad false) on ", rank_list(ranks, accounts.size()),
                           " and not on the others"));
  }
  for (std::size_t rank = 1; rank < accounts.size(); ++rank) {
    if (accounts[rank].pass != accounts[0].pass) {
      parts.push_back(concat("rank 0 is in synchronised pass ", accounts[0].pass, " and rank ", rank, " in pass ",
                             accounts[rank].pass));
    }
    if (accounts[rank].plan_hash != accounts[0].plan_hash) {
      parts.push_back(concat("the bucket plans of rank 0 and rank ", rank, " differ"));
    }
  }
  std::string text = kPrefix;
  for (std::size_t i = 0; i < parts.size(); ++i) text += concat(i == 0 ? "" : "; ", parts[i]);
  if (!all_names(accounts, &PassAccount::missing).empty()) {
    text +=
        ". Every parameter that requires grad must take part in the loss on every rank; freeze the others on all "
        "ranks or leave them out by parameters_to_ignore";
  }
  return text;
}

std::string exchange_accounts(comm::ProcessGroup& group, const PassAccount& mine,
                              const comm::CollectiveOptions& options, std::source_location where) {
  std::vector<PassAccount> accounts;
  for (const comm::Bytes& bytes : group.all_gather_bytes(encode(mine), options, where)) {
    accounts.push_back(decode_account(bytes));
  }
  return describe(accounts);
}

std::string describe_abandoned(const StatusSum& status) {
  if (status.abandoned > 1) {
    return concat(kPrefix, "several ranks left backward by an exception or gave the pass up");
  }
  return concat(kPrefix, "rank ", status.abandoned_rank, " left backward by an exception or gave the pass up");
}

}  // namespace ddp::parallel
