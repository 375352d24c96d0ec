// One body for all stores, then what is particular to each.
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "comm/process_group_conformance.h"
#include "comm/store/socket.h"
#include "ddp/comm/store.h"

namespace ddp::test {
namespace {

using comm::Bytes;
using comm::Store;
using std::chrono::milliseconds;

std::string temporary_path() {
  static std::atomic<int> count{0};
  return (std::filesystem::temp_directory_path() / concat("ddp_store_test.", ::getpid(), ".", count.fetch_add(1)))
      .string();
}

struct Made {
  std::unique_ptr<comm::TCPStoreServer> server;
  std::string path;
  std::shared_ptr<Store> first;
  std::shared_ptr<Store> second;  // another client's view of the same store
  ~Made() {
    if (!path.empty()) std::filesystem::remove(path);
  }
};

std::unique_ptr<Made> make(const std::string& kind) {
  auto made = std::make_unique<Made>();
  if (kind == "hash") {
    made->first = made->second = std::make_shared<comm::HashStore>();
  } else if (kind == "file") {
    made->path = temporary_path();
    made->first = std::make_shared<comm::FileStore>(made->path);
    made->second = std::make_shared<comm::FileStore>(made->path);
  } else if (kind == "tcp") {
    made->server = std::make_unique<comm::TCPStoreServer>("127.0.0.1");
    made->first = std::make_shared<comm::TCPStore>("127.0.0.1", made->server->port(), milliseconds(5000));
    made->second = std::make_shared<comm::TCPStore>("127.0.0.1", made->server->port(), milliseconds(5000));
  } else {
    const auto base = std::make_shared<comm::HashStore>();
    made->first = std::make_shared<comm::PrefixStore>("a/", base);
    made->second = std::make_shared<comm::PrefixStore>("a/", base);
  }
  return made;
}

class StoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Made> made_ = make(GetParam());
  Store& store_ = *made_->first;
  Store& other_ = *made_->second;
};

TEST_P(StoreTest, KeepsBytes) {
  const Bytes value{0, 255, 10, 13, 0};
  store_.set("key", value);
  EXPECT_EQ(other_.get("key", milliseconds(1000)), value);
  store_.set("key", Bytes{});
  EXPECT_EQ(other_.get("key", milliseconds(1000)), Bytes{});
  const std::string odd("k\0\n/", 4);
  store_.set_text(odd, "x");
  EXPECT_EQ(other_.get_text(odd, milliseconds(1000)), "x");
}

TEST_P(StoreTest, KeepsLargeValues) {
  Bytes value(3'000'001);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::uint8_t>(i * 31 >> 3);
  store_.set("large", value);
  EXPECT_EQ(other_.get("large", milliseconds(5000)), value);
}

TEST_P(StoreTest, GetWaitsForAnother) {
  std::thread setter([&] {
    std::this_thread::sleep_for(milliseconds(60));
    other_.set_text("later", "here");
  });
  EXPECT_EQ(store_.get_text("later", milliseconds(10'000)), "here");
  setter.join();
}

TEST_P(StoreTest, GetTimesOutByName) {
  const auto text = error_text<TimeoutError>([&] { store_.get("missing-key", milliseconds(70)); });
  EXPECT_CONTAINS(text, "missing-key");
  EXPECT_CONTAINS(text, "70 ms");
  EXPECT_CONTAINS(text, store_.describe());
  // And goes on working.
  store_.set_text("missing-key", "now");
  EXPECT_EQ(store_.get_text("missing-key", milliseconds(1000)), "now");
}

TEST_P(StoreTest, AWaitingGetHoldsUpNobody) {
  std::thread waiter([&] { EXPECT_EQ(store_.get_text("gate", milliseconds(10'000)), "open"); });
  store_.set_text("other", "1");
  EXPECT_EQ(store_.get_text("other", milliseconds(1000)), "1");
  store_.set_text("gate", "open");
  waiter.join();
}

TEST_P(StoreTest, AddIsAtomic) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Store& mine = t % 2 == 0 ? store_ : other_;
      for (int i = 0; i < kTimes; ++i) mine.add("counter", t + 1);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store_.add("counter", 0), kTimes * (1 + 2 + 3 + 4));
  EXPECT_EQ(other_.add("counter", -600), -100);
  EXPECT_EQ(other_.get_text("counter", milliseconds(1000)), "-100");
  store_.set_text("word", "ten");
  EXPECT_CONTAINS(error_text<CommError>([&] { store_.add("word", 1); }), "word");
}

TEST_P(StoreTest, SetIfAbsentHasOneWinner) {
  std::vector<std::string> seen(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&, t] {
      Store& mine = t % 2 == 0 ? store_ : other_;
      const std::string text = std::to_string(t);
      const Bytes standing = mine.set_if_absent("first", Bytes(text.begin(), text.end()));
      seen[t] = {standing.begin(), standing.end()};
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string winner = store_.get_text("first", milliseconds(1000));
  for (const auto& value : seen) EXPECT_EQ(value, winner);
}

TEST_P(StoreTest, CheckAndErase) {
  EXPECT_FALSE(store_.check("a"));
  store_.set_text("a", "1");
  EXPECT_TRUE(other_.check("a"));
  EXPECT_TRUE(other_.erase("a"));
  EXPECT_FALSE(store_.erase("a"));
  EXPECT_FALSE(store_.check("a"));
  EXPECT_EQ(store_.add("a", 5), 5);
}

TEST_P(StoreTest, RefusesKeysOutsideTheLimits) {
  EXPECT_THROW(store_.set_text("", "x"), InvalidArgument);
  EXPECT_CONTAINS(error_text<InvalidArgument>([&] { store_.set_text(std::string(1100, 'k'), "x"); }), "1100");
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreTest, ::testing::Values("hash", "file", "tcp", "prefix"),
                         [](const auto& info) { return info.param; });

TEST(PrefixStoreTest, UsesOfOneStoreDoNotMeet) {
  const auto base = std::make_shared<comm::HashStore>();
  comm::PrefixStore a("a/", base);
  comm::PrefixStore b("b/", base);
  a.set_text("key", "1");
  EXPECT_FALSE(b.check("key"));
  EXPECT_EQ(base->get_text("a/key", milliseconds(100)), "1");
}

TEST(FileStoreTest, AnotherRunIsRefusedByName) {
  const std::string path = temporary_path();
  {
    comm::FileStore(path, "run 7").set_text("address", "10.0.0.1");
  }
  const auto text = error_text<CommError>([&] { comm::FileStore(path, "run 8"); });
  EXPECT_CONTAINS(text, path);
  EXPECT_CONTAINS(text, "run 7");
  EXPECT_CONTAINS(text, "run 8");
  EXPECT_EQ(comm::FileStore(path, "run 7").get_text("address", milliseconds(100)), "10.0.0.1");
  std::filesystem::remove(path);
}

TEST(FileStoreTest, ATornRecordIsCutOff) {
  const std::string path = temporary_path();
  {
    comm::FileStore(path).set_text("whole", "1");
  }
  {
    std::ofstream file(path, std::ios::app | std::ios::binary);
    file << '\1' << std::string("\5\0\0\0\xff", 5);  // begins like a record, then the writer died
  }
  comm::FileStore store(path);
  EXPECT_EQ(store.get_text("whole", milliseconds(100)), "1");
  store.set_text("next", "2");
  EXPECT_EQ(comm::FileStore(path).get_text("next", milliseconds(100)), "2");
  std::filesystem::remove(path);
}

TEST(FileStoreTest, ForeignAndUnreachableFilesAreNamed) {
  const std::string path = temporary_path();
  {
    std::ofstream(path) << "shopping list\n";
  }
  EXPECT_CONTAINS(error_text<CommError>([&] { comm::FileStore store(path); }), path);
  std::filesystem::remove(path);
  EXPECT_CONTAINS(error_text<IoError>([&] { comm::FileStore store("/nonexistent/folder/file"); }),
                  "/nonexistent/folder/file");
}

TEST(TCPStoreTest, AUsedPortIsNamed) {
  const comm::TCPStoreServer first("127.0.0.1");
  const auto text = error_text<CommError>([&] { comm::TCPStoreServer("127.0.0.1", first.port()); });
  EXPECT_CONTAINS(text, "in use");
  EXPECT_CONTAINS(text, concat("127.0.0.1:", first.port()));
  EXPECT_CONTAINS(error_text<CommError>([&] { comm::TCPStoreServer({}, first.port()); }), "in use");
}

TEST(TCPStoreTest, APortCanBeServedAgainAtOnce) {
  std::uint16_t port = 0;
  for (int i = 0; i < 3; ++i) {
    const comm::TCPStoreServer server("127.0.0.1", port);
    port = server.port();
    comm::TCPStore store("127.0.0.1", port, milliseconds(5000));
    EXPECT_FALSE(store.check("from before"));
    store.set_text("from before", "x");
  }
}

TEST(TCPStoreTest, WrongAddressesAreRefusedUnasked) {
  EXPECT_CONTAINS(error_text<InvalidArgument>([] { comm::TCPStore("127.0.0.1", 0, milliseconds(1000)); }), "65535");
  EXPECT_CONTAINS(error_text<InvalidArgument>([] { comm::TCPStore("", 4000, milliseconds(1000)); }), "''");
  EXPECT_CONTAINS(error_text<InvalidArgument>([] { comm::TCPStore("a b", 4000, milliseconds(1000)); }), "'a b'");
}

TEST(TCPStoreTest, BlanksAroundAnAddressAreCut) {
  const comm::TCPStoreServer server("127.0.0.1");
  comm::TCPStore store(" 127.0.0.1\n", server.port(), milliseconds(5000));
  EXPECT_FALSE(store.check("x"));
}

TEST(TCPStoreTest, NobodyThereTimesOutByName) {
  std::uint16_t port = 0;
  {
    port = comm::TCPStoreServer("127.0.0.1").port();
  }
  const auto text = error_text<TimeoutError>([&] { comm::TCPStore("127.0.0.1", port, milliseconds(150)); });
  EXPECT_CONTAINS(text, concat("127.0.0.1:", port));
  EXPECT_CONTAINS(text, "150 ms");
  EXPECT_CONTAINS(text, "refused");
}

TEST(TCPStoreTest, UnknownNamesAreQuoted) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_CONTAINS(error_text<CommError>([] { comm::TCPStore("no-such-host.invalid", 4000, milliseconds(2000)); }),
                  "'no-such-host.invalid'");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << "the limit is 2 s";
}

TEST(TCPStoreTest, LocalhostWorksWhicheverAddressComesFirst) {
  const comm::TCPStoreServer server("localhost");
  comm::TCPStore by_name("localhost", server.port(), milliseconds(5000));
  by_name.set_text("a", "1");
  // Served at 127.0.0.1 only: the name's other address answers nothing.
  const comm::TCPStoreServer v4("127.0.0.1");
  comm::TCPStore store("localhost", v4.port(), milliseconds(5000));
  EXPECT_FALSE(store.check("a"));
}

TEST(TCPStoreTest, OverIPv6) {
  int error = 0;
  const auto any = comm::resolve("::1", 0, comm::deadline_after(milliseconds(1000)));
  if (!comm::try_listen(any.front(), false, error)) GTEST_SKIP() << "no IPv6 here: " << comm::errno_text(error);
  const comm::TCPStoreServer server("::1");
  comm::TCPStore store("::1", server.port(), milliseconds(5000));
  store.set_text("a", "1");
  EXPECT_CONTAINS(store.describe(), "[::1]:");
}

// Ranks that end after the server's rank was killed ask the store once more each, and must not hang on it.
TEST(TCPStoreTest, AGoneServerIsNotWaitedFor) {
  auto server = std::make_unique<comm::TCPStoreServer>("127.0.0.1");
  comm::TCPStore store("127.0.0.1", server->port(), milliseconds(5000));
  server.reset();
  EXPECT_THROW(store.check("a"), CommError);  // the connection that was there
  try {
    store.check("a");
    FAIL() << "no server, no error";
  } catch (const TimeoutError& error) {
    EXPECT_CONTAINS(error.what(), "within 1000 ms: Connection refused");
  }
}

TEST(TCPStoreTest, AGoneServerIsAnErrorNotASignal) {
  auto server = std::make_unique<comm::TCPStoreServer>("127.0.0.1");
  const std::uint16_t port = server->port();
  comm::TCPStore store("127.0.0.1", port, milliseconds(5000));
  store.set_text("a", "1");
  std::thread waiter(
      [&] { EXPECT_CONTAINS(error_text<CommError>([&] { store.get("never", milliseconds(20'000)); }), concat(port)); });
  while (!store.check("a")) {
  }
  server.reset();
  waiter.join();
}

TEST(TCPStoreTest, StrangersAreDroppedAndStrangeServersNamed) {
  const comm::TCPStoreServer server("127.0.0.1");
  const auto deadline = comm::deadline_after(milliseconds(5000));
  std::string reason;
  const auto endpoints = comm::resolve("127.0.0.1", server.port(), deadline);
  const auto stranger = comm::try_connect(endpoints.front(), deadline, reason);
  ASSERT_TRUE(comm::send_all(stranger, "GET / HTTP/1.1\r\n\r\n", 18, deadline, reason));
  char byte = 0;
  std::size_t bytes = 0;
  while (comm::recv_all(stranger, &byte, 1, deadline, reason)) ++bytes;
  EXPECT_LE(bytes, 8U) << "nothing but the greeting";
  comm::TCPStore store("127.0.0.1", server.port(), milliseconds(5000));
  EXPECT_FALSE(store.check("x"));

  // A listener that says something else.
  int error = 0;
  auto any = comm::resolve("127.0.0.1", 0, deadline);
  const auto listener = comm::try_listen(any.front(), false, error);
  const std::uint16_t port = comm::port_of(listener);
  std::thread strange([&] {
    comm::Descriptor peer;
    while (!peer) peer = comm::Descriptor(::accept(listener.get(), nullptr, nullptr));
    ASSERT_TRUE(comm::send_all(peer, "SSH-2.0-strange", 15, deadline, reason));
    std::string ignored;
    char hello[8];
    comm::recv_all(peer, hello, sizeof hello, deadline, ignored);
  });
  EXPECT_CONTAINS(error_text<CommError>([&] { comm::TCPStore("127.0.0.1", port, milliseconds(5000)); }), "not a store");
  strange.join();
}

}  // namespace
}  // namespace ddp::test
