# Asks an echo server by ruby's kinds of calls, and has calls ended by a close and by an exception.
require "digest"
require "socket"
require "timeout"

def connected
  socket = TCPSocket.new("127.0.0.1", ARGV[0].to_i)
  socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
  ask(socket, 300)
  socket
end

def ask(socket, rounds)
  rounds.times do |n|
    sent = (n % 256).chr * (1 + n * 7)
    socket.write(sent)
    raise "round #{n}" unless socket.read(sent.bytesize) == sent
  end
end

def stream
  socket = connected
  sent, got = Digest::MD5.new, Digest::MD5.new
  sender = Thread.new do
    1.upto(200) do |n|
      part = (n % 256).chr * (n * 997)
      sent << part
      socket.write(part)
    end
    socket.close_write
  end
  while (part = socket.read(30_000))
    got << part
  end
  sender.join
  puts "stream #{sent == got}"
end

def nonblocking
  socket = connected
  puts socket.read_nonblock(1, exception: false)
  puts IO.select([socket], nil, nil, 0.03).inspect
  sent = 0
  while sent < 3_000_000 && (count = socket.write_nonblock("x" * 100_000, exception: false)) != :wait_writable
    sent += count
  end
  until sent.zero?
    IO.select([socket], nil, nil, 20) or raise "nothing comes"
    sent -= socket.recv_nonblock(50_000).bytesize
  end
  puts socket.wait_readable(0.03).inspect, socket.wait_writable(20).equal?(socket)
  socket.close
end

def said
  yield.inspect
rescue StandardError => e
  "#{e.class}: #{e.message}"
end

def ended
  socket = connected
  reader = Thread.new { said { socket.read(1) } }
  sleep 0.03
  socket.close
  puts reader.value
  socket = connected
  puts(said { Timeout.timeout(0.03) { socket.read(1) } })
  ask(socket, 3)
  pid = fork { ask(socket, 30) and exit! 0 }
  Process.wait(pid)
  puts $?.exitstatus
  ask(socket, 30)
  socket.close
end

$stdout.sync = true
stream
nonblocking
ended
kept = connected
puts "idle"
$stdin.gets
ask(kept, 1)
puts "done"
