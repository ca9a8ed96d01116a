# An echo server: a thread for each connection.
require "socket"

server = TCPServer.new("127.0.0.1", ARGV[0].to_i)
trap("TERM") { exit! 0 }
loop do
  Thread.new(server.accept) do |socket|
    socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    loop { socket.write(socket.readpartial(65_536)) }
  rescue SystemCallError, IOError
    socket.close
  end
end
