#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Key-value stores through which ranks find each other and agree. Every wait has a deadline.
namespace ddp::comm {

using Bytes = std::vector<std::uint8_t>;

/// A store. Thread safe. Keys are any bytes up to 1 KiB, values up to 64 MiB; a set value may be set again.
class Store {
 public:
  virtual ~Store() = default;

  virtual void set(std::string_view key, std::span<const std::uint8_t> value) = 0;
  /// Blocks until the key is set. Throws TimeoutError that names the key, the address or path, and the time waited.
  virtual Bytes get(std::string_view key, std::chrono::milliseconds timeout,
                    std::source_location where = std::source_location::current()) = 0;
  /// Adds to a whole number kept under the key (0 when unset) and returns the sum, atomically.
  virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
  /// Sets only when the key is unset; returns the value that then stands, atomically.
  virtual Bytes set_if_absent(std::string_view key, std::span<const std::uint8_t> value) = 0;
  /// Present now? Does not wait.
  virtual bool check(std::string_view key) = 0;
  /// Removes it; true when it was there.
  virtual bool erase(std::string_view key) = 0;
  /// Where it is, for messages: "TCPStore at 10.0.0.1:29500", "FileStore '/tmp/x'".
  virtual std::string describe() const = 0;

  void set_text(std::string_view key, std::string_view value);
  std::string get_text(std::string_view key, std::chrono::milliseconds timeout,
                       std::source_location where = std::source_location::current());
};

/// Inside one process.
class HashStore final : public Store {
 public:
  HashStore();
  ~HashStore() override;
  void set(std::string_view key, std::span<const std::uint8_t> value) override;
  Bytes get(std::string_view key, std::chrono::milliseconds timeout,
            std::source_location where = std::source_location::current()) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  Bytes set_if_absent(std::string_view key, std::span<const std::uint8_t> value) override;
  bool check(std::string_view key) override;
  bool erase(std::string_view key) override;
  std::string describe() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// In a file on a shared file system (POSIX locks). The file is made when missing; one left over from
/// another run is told apart by `run_id` and refused with an error that names it.
class FileStore final : public Store {
 public:
  explicit FileStore(std::string path, std::string run_id = {});
  ~FileStore() override;
  void set(std::string_view key, std::span<const std::uint8_t> value) override;
  Bytes get(std::string_view key, std::chrono::milliseconds timeout,
            std::source_location where = std::source_location::current()) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  Bytes set_if_absent(std::string_view key, std::span<const std::uint8_t> value) override;
  bool check(std::string_view key) override;
  bool erase(std::string_view key) override;
  std::string describe() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The server side of TCPStore: listens and keeps the values. Owned by rank 0 or by a launcher.
class TCPStoreServer {
 public:
  /// Port 0 takes a free one. Throws CommError with host:port when it is in use.
  explicit TCPStoreServer(const std::string& host = {}, std::uint16_t port = 0);
  ~TCPStoreServer();
  TCPStoreServer(const TCPStoreServer&) = delete;
  TCPStoreServer& operator=(const TCPStoreServer&) = delete;
  std::uint16_t port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Over TCP (IPv4 and IPv6), plain POSIX sockets with poll() deadlines.
class TCPStore final : public Store {
 public:
  /// Connects, retrying until the deadline. Throws InvalidArgument for an address or port that cannot be
  /// (before any socket call), TimeoutError naming host, port and the last reason.
  TCPStore(const std::string& host, std::uint16_t port, std::chrono::milliseconds connect_timeout,
           std::source_location where = std::source_location::current());
  ~TCPStore() override;
  void set(std::string_view key, std::span<const std::uint8_t> value) override;
  Bytes get(std::string_view key, std::chrono::milliseconds timeout,
            std::source_location where = std::source_location::current()) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  Bytes set_if_absent(std::string_view key, std::span<const std::uint8_t> value) override;
  bool check(std::string_view key) override;
  bool erase(std::string_view key) override;
  std::string describe() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Puts a prefix before every key, so that two uses of one store cannot meet.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);
  void set(std::string_view key, std::span<const std::uint8_t> value) override;
  Bytes get(std::string_view key, std::chrono::milliseconds timeout,
            std::source_location where = std::source_location::current()) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  Bytes set_if_absent(std::string_view key, std::span<const std::uint8_t> value) override;
  bool check(std::string_view key) override;
  bool erase(std::string_view key) override;
  std::string describe() const override;

 private:
  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace ddp::comm
