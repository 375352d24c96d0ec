#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <thread>

#include "comm/store/key_table.h"
#include "comm/store/socket.h"
#include "core/observer.h"
#include "ddp/core/error.h"

namespace ddp::comm {
namespace {

// The file: a line "ddp-file-store 1 RUN_ID", then records: what (1 byte), key length (4), value length (4), key,
// value. Changes are appended under a lock; whoever holds it reads what is new first.
constexpr std::string_view kMagic = "ddp-file-store 1 ";
constexpr std::size_t kRecordHeader = 9;
constexpr std::uint8_t kSet = 1;
constexpr std::uint8_t kErase = 2;
constexpr std::chrono::seconds kLockTime{15};

std::uint32_t take32(const std::uint8_t* from) {
  return static_cast<std::uint32_t>(from[0]) | static_cast<std::uint32_t>(from[1]) << 8 |
         static_cast<std::uint32_t>(from[2]) << 16 | static_cast<std::uint32_t>(from[3]) << 24;
}

void put32(Bytes& to, std::size_t value) {
  for (int shift = 0; shift < 32; shift += 8) to.push_back(static_cast<std::uint8_t>(value >> shift));
}

}  // namespace

struct FileStore::Impl {
  std::string path;
  std::string run_id;
  std::mutex mutex;
  Descriptor file;
  KeyTable table;
  std::size_t read_to = 0;

  /// Holds the file's lock, with what others have written taken over.
  class Session {
   public:
    explicit Session(Impl& impl) : impl_(impl), guard_(impl.mutex) {
      const auto deadline = Clock::now() + kLockTime;
      while (::flock(impl_.file.get(), LOCK_EX | LOCK_NB) != 0) {
        DDP_CHECK(errno == EWOULDBLOCK || errno == EINTR, IoError, impl_.name(), ": flock: ", errno_text(errno));
        DDP_CHECK(Clock::now() < deadline, TimeoutError, impl_.name(),
                  ": another process has kept the file locked for ", kLockTime.count(), " s");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      try {
        impl_.catch_up();
      } catch (...) {
        ::flock(impl_.file.get(), LOCK_UN);
        throw;
      }
    }
    ~Session() { ::flock(impl_.file.get(), LOCK_UN); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    Impl& impl_;
    const std::lock_guard<std::mutex> guard_;
  };

  std::string name() const { return concat("FileStore '", path, "'"); }
  void catch_up();
  void append(std::span<const std::uint8_t> bytes);
  void append_record(std::uint8_t what, std::string_view key, std::span<const std::uint8_t> value);
};

void FileStore::Impl::append(std::span<const std::uint8_t> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written =
        ::pwrite(file.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(read_to + done));
    if (written < 0 && errno == EINTR) continue;
    DDP_CHECK(written > 0, IoError, name(), ": cannot write: ", errno_text(errno));
    done += static_cast<std::size_t>(written);
  }
  read_to += bytes.size();
}

void FileStore::Impl::append_record(std::uint8_t what, std::string_view key, std::span<const std::uint8_t> value) {
  Bytes record{what};
  put32(record, key.size());
  put32(record, value.size());
  record.insert(record.end(), key.begin(), key.end());
  record.insert(record.end(), value.begin(), value.end());
  append(record);
}

void FileStore::Impl::catch_up() {
  struct stat status{};
  DDP_CHECK(::fstat(file.get(), &status) == 0, IoError, name(), ": ", errno_text(errno));
  const auto size = static_cast<std::size_t>(status.st_size);
  DDP_CHECK(size >= read_to, CommError, name(), " has shrunk from ", read_to, " to ", size,
            " bytes: something else writes to it");
  if (size == 0) {
    append(to_bytes(concat(kMagic, run_id, "\n")));
    return;
  }
  if (size == read_to) return;
  Bytes news(size - read_to);
  std::size_t have = 0;
  while (have < news.size()) {
    const ssize_t got = ::pread(file.get(), news.data() + have, news.size() - have, static_cast<off_t>(read_to + have));
    if (got < 0 && errno == EINTR) continue;
    DDP_CHECK(got > 0, IoError, name(), ": cannot read: ", errno_text(errno));
    have += static_cast<std::size_t>(got);
  }
  std::size_t at = 0;
  if (read_to == 0) {
    const auto end = std::ranges::find(news, static_cast<std::uint8_t>('\n'));
    const std::string line(news.begin(), end);
    DDP_CHECK(end != news.end() && line.starts_with(kMagic), CommError, name(), " exists and is not a store file");
    const std::string theirs = line.substr(kMagic.size());
    DDP_CHECK(theirs == run_id, CommError, name(), " is left over from another run (its run id is '", theirs,
              "', this run's '", run_id, "'); remove the file");
    at = line.size() + 1;
  }
  while (news.size() - at >= kRecordHeader) {
    const std::uint8_t* record = news.data() + at;
    const std::size_t key_bytes = take32(record + 1);
    const std::size_t value_bytes = take32(record + 5);
    const std::size_t whole = kRecordHeader + key_bytes + value_bytes;
    if (news.size() - at < whole) break;
    const std::string_view key(reinterpret_cast<const char*>(record + kRecordHeader), key_bytes);
    if (record[0] == kSet) {
      table.set(key, std::span(record + kRecordHeader + key_bytes, value_bytes));
    } else {
      table.erase(key);
    }
    at += whole;
  }
  read_to += at;
  // The lock is held, so a record that is not whole was left by a writer that died in it; the next one replaces it.
  if (at < news.size() && ::ftruncate(file.get(), static_cast<off_t>(read_to)) != 0) {
    ddp::detail::fail<IoError>(name(), ": cannot cut off a torn record: ", errno_text(errno));
  }
}

FileStore::FileStore(std::string path, std::string run_id) : impl_(std::make_unique<Impl>()) {
  DDP_CHECK(!path.empty(), InvalidArgument, "FileStore: the path is empty");
  DDP_CHECK(run_id.find('\n') == std::string::npos, InvalidArgument, "FileStore: the run id has a line break");
  impl_->path = std::move(path);
  impl_->run_id = std::move(run_id);
  constexpr mode_t kMode = 0600;
  impl_->file = Descriptor(::open(impl_->path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode));
  DDP_CHECK(impl_->file, IoError, impl_->name(), ": cannot open: ", errno_text(errno));
  const Impl::Session session(*impl_);
}

FileStore::~FileStore() = default;

void FileStore::set(std::string_view key, std::span<const std::uint8_t> value) {
  check_key(key);
  check_value(key, value);
  const Impl::Session session(*impl_);
  impl_->append_record(kSet, key, value);
  impl_->table.set(key, value);
}

Bytes FileStore::get(std::string_view key, std::chrono::milliseconds timeout, std::source_location where) {
  check_key(key);
  const core::BlockingScope scope("comm::Store::get", Device::cpu(), where);
  const auto deadline = deadline_after(timeout);
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    {
      const Impl::Session session(*impl_);
      if (const Bytes* value = impl_->table.find(key)) return *value;
    }
    const auto now = Clock::now();
    DDP_CHECK(now < deadline, TimeoutError, describe(), ": key '", key, "' was not set within ", timeout.count(),
              " ms");
    std::this_thread::sleep_until(std::min(deadline, now + pause));
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
}

std::int64_t FileStore::add(std::string_view key, std::int64_t amount) {
  check_key(key);
  const Impl::Session session(*impl_);
  const std::int64_t sum = impl_->table.add(key, amount);
  impl_->append_record(kSet, key, *impl_->table.find(key));
  return sum;
}

Bytes FileStore::set_if_absent(std::string_view key, std::span<const std::uint8_t> value) {
  check_key(key);
  check_value(key, value);
  const Impl::Session session(*impl_);
  if (const Bytes* standing = impl_->table.find(key)) return *standing;
  impl_->append_record(kSet, key, value);
  return impl_->table.set_if_absent(key, value);
}

bool FileStore::check(std::string_view key) {
  check_key(key);
  const Impl::Session session(*impl_);
  return impl_->table.find(key) != nullptr;
}

bool FileStore::erase(std::string_view key) {
  check_key(key);
  const Impl::Session session(*impl_);
  if (impl_->table.find(key) == nullptr) return false;
  impl_->append_record(kErase, key, {});
  return impl_->table.erase(key);
}

std::string FileStore::describe() const { return impl_->name(); }

}  // namespace ddp::comm
