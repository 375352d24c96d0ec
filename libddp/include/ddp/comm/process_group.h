#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "ddp/comm/store.h"
#include "ddp/comm/types.h"
#include "ddp/comm/work.h"
#include "ddp/tensor/tensor.h"

/// Groups of ranks that exchange tensors.
namespace ddp::comm {

/// One collective as a backend gets it: checked, on the group's device, contiguous.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  std::vector<Tensor> inputs = {};
  std::vector<Tensor> outputs = {};
  int root = 0;                ///< or the peer of send and recv
  int tag = 0;                 ///< of send and recv
  std::uint64_t sequence = 0;  ///< counts the lane's collectives from 1, equal on all ranks; 0 for send and recv
  CollectiveOptions options = {};
  std::source_location where = {};
};

/// Counted per group since construction.
struct GroupCounters {
  std::uint64_t collectives = 0;
  std::uint64_t bytes = 0;  ///< of the tensors handed in, on this rank
};

/// N ranks that call the same collectives in the same order. Owned by whoever made it; many can live in
/// one process. Calls are asynchronous: they return a Work. Calls of one group must come from one thread
/// at a time, and in one order on all ranks for each lane.
///
/// Tensors must be contiguous, non-overlapping and on the group's device, else InvalidArgument with nothing
/// sent. With world size 1 nothing is sent and results are copies. Tensors without elements are not sent.
///
/// Ranks that call different things (kind, operation, root, dtype, sizes) get no result: the in-process group
/// fails at once, Gloo when it has waited half a second (it then compares over the store), on every rank and
/// naming both sides. Labels are compared with `InitOptions::check_collectives` only. NCCL does not notice by itself:
/// a rank that has waited half a second compares with what the others have called on the lane, but a rank whose part
/// NCCL took for done has by then got numbers; `check_collectives` compares before anything is sent.
///
/// On CUDA devices a collective comes after what the caller's current stream of the group's device has, on a stream of
/// the lane's own, and `Work::wait` orders a stream after it without blocking the host. Messages (send, recv) are
/// queued when both ranks have called; until then waiting for one blocks the host. A failure that shows later, on the
/// device, is thrown by calls that block and by the group's next calls. NCCL wants all collectives of a GPU, of
/// whatever lane or group, in one order on all ranks; the other groups only those of one lane.
///
/// When a rank fails or a deadline passes, every waiting call on every rank throws CommError or
/// TimeoutError naming the collective, its label and the rank at fault as far as known; the group is then
/// unusable. The destructor aborts while an exception is on its way or after an error, else drains within
/// a deadline; it never throws.
class ProcessGroup {
 public:
  virtual ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device device() const { return device_; }
  /// "gloo", "nccl", "local", ...
  virtual std::string backend() const = 0;
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// Collectives that can run side by side; see CollectiveOptions::lane.
  virtual int lanes() const { return 1; }
  /// Makes at least that many lanes usable. Collective over the group. Throws where a backend cannot.
  virtual void ensure_lanes(int count);
  GroupCounters counters() const;
  /// The store the group was made over, under the group's own prefix; null for groups without one.
  virtual std::shared_ptr<Store> store() const { return nullptr; }
  /// A word that the group's device can read, or null. It becomes other than 0 before a failure of the group ends
  /// collectives that are on their way: what follows them in a stream, and finds 0 there, finds their results whole.
  virtual const std::uint64_t* failure_word() const { return nullptr; }

  /// In place. Every rank ends with the same bits. Whole numbers wrap; of bool tensors sum and max are "or",
  /// product and min are "and".
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum, CollectiveOptions options = {},
                  std::source_location where = std::source_location::current());
  /// One Work for several tensors of one dtype; backends may join them into one message.
  Work all_reduce_coalesced(const std::vector<Tensor>& tensors, ReduceOp op = ReduceOp::sum,
                            CollectiveOptions options = {},
                            std::source_location where = std::source_location::current());
  /// In place, from `root`.
  Work broadcast(const Tensor& tensor, int root = 0, CollectiveOptions options = {},
                 std::source_location where = std::source_location::current());
  Work broadcast_coalesced(const std::vector<Tensor>& tensors, int root = 0, CollectiveOptions options = {},
                           std::source_location where = std::source_location::current());
  /// `output` [size, ...input sizes]; row r is rank r's input.
  Work all_gather(const Tensor& output, const Tensor& input, CollectiveOptions options = {},
                  std::source_location where = std::source_location::current());
  /// `input` [size, ...output sizes]; this rank gets the reduced row `rank()`.
  Work reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                      CollectiveOptions options = {}, std::source_location where = std::source_location::current());
  /// On the root `output` is [size, ...input sizes]; elsewhere it is not looked at.
  Work gather(const Tensor& output, const Tensor& input, int root = 0, CollectiveOptions options = {},
              std::source_location where = std::source_location::current());
  /// On the root `input` is [size, ...output sizes]; elsewhere it is not looked at.
  Work scatter(const Tensor& output, const Tensor& input, int root = 0, CollectiveOptions options = {},
               std::source_location where = std::source_location::current());
  /// Both [size, ...]: row r of input goes to rank r, row r of output came from rank r.
  Work all_to_all(const Tensor& output, const Tensor& input, CollectiveOptions options = {},
                  std::source_location where = std::source_location::current());
  /// Point to point; `tag` in [0, 2^16) tells messages of one pair apart.
  Work send(const Tensor& tensor, int to, int tag = 0, CollectiveOptions options = {},
            std::source_location where = std::source_location::current());
  Work recv(const Tensor& tensor, int from, int tag = 0, CollectiveOptions options = {},
            std::source_location where = std::source_location::current());

  /// Blocks the host until every rank has come here.
  void barrier(CollectiveOptions options = {}, std::source_location where = std::source_location::current());
  /// The root's bytes on every rank; any length, found out on the way. Blocks the host.
  Bytes broadcast_bytes(const Bytes& bytes, int root = 0, CollectiveOptions options = {},
                        std::source_location where = std::source_location::current());
  /// Every rank's bytes, by rank; lengths may differ. Blocks the host.
  std::vector<Bytes> all_gather_bytes(const Bytes& bytes, CollectiveOptions options = {},
                                      std::source_location where = std::source_location::current());

  /// A group of the ranks with the same colour, ordered by (key, rank). Collective over this group; a
  /// negative colour takes part and gets null.
  virtual std::shared_ptr<ProcessGroup> split(int color, int key = 0,
                                              std::source_location where = std::source_location::current()) = 0;
  /// A group of these ranks. Collective over this group; others get null.
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks,
                                          std::source_location where = std::source_location::current());

  /// Ends every pending and later collective of this rank with CommError carrying `reason`, and makes the
  /// peers' fail too. Thread safe, never throws, does not wait for anybody.
  virtual void abort(const std::string& reason) noexcept = 0;

 protected:
  ProcessGroup(int rank, int size, Device device, std::chrono::milliseconds timeout);
  /// Starts a checked collective. Must not block on peers.
  virtual Work launch(Collective collective) = 0;

 private:
  Work start(Collective collective);
  const int rank_;
  const int size_;
  const Device device_;
  const std::chrono::milliseconds timeout_;
  struct Books;
  std::unique_ptr<Books> books_;
};

/// How init_process_group makes a group. Unset fields come from the environment: RANK, WORLD_SIZE,
/// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (Open MPI's, PMI's and Slurm's are known too).
struct InitOptions {
  std::string backend = {};  ///< "gloo" or "nccl"; empty: nccl when every local rank has a GPU, else gloo
  std::optional<Device> device =
      {};  ///< default: cuda:LOCAL_RANK for nccl (in turn where ranks share GPUs), cpu:0 for gloo
  std::optional<int> rank = {};
  std::optional<int> size = {};
  std::shared_ptr<Store> store =
      {};  ///< default: TCPStore at MASTER_ADDR:MASTER_PORT, served by rank 0 unless a launcher does
  std::chrono::milliseconds timeout = kDefaultTimeout;
  /// Compare kind, dtype, sizes and label of every collective on all ranks first (slow; for finding a mismatch).
  bool check_collectives = false;
  /// Gloo: let the numbers of all_reduce go through shared memory when all ranks are processes of one host that can
  /// map each other's (16 MiB a rank and lane; nothing is left behind). One rank without it, or DDP_SHARED_MEMORY=0 in
  /// its environment, and all use the connections. Results are the same bits either way.
  bool shared_memory = true;
};

/// Makes the world's group. Collective: returns when all ranks are there. Strict: a missing or inconsistent
/// RANK or WORLD_SIZE, or a backend this build lacks, throws; a rank that does not come, comes twice, or
/// has another world size is named on every rank before the deadline. Blocks the host.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {},
                                                 std::source_location where = std::source_location::current());

/// One group over several devices of this process: element r is rank r. A device may repeat. Each rank's
/// calls must come from its own thread. For DataParallel and for tests with threads as ranks.
std::vector<std::shared_ptr<ProcessGroup>> init_local_groups(const std::vector<Device>& devices,
                                                             std::chrono::milliseconds timeout = kDefaultTimeout);

}  // namespace ddp::comm
