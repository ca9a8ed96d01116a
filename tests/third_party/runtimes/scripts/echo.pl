# An echo server: a process for each connection.
use strict;
use warnings;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 64, ReuseAddr => 1)
    or die "listen: $!";
$SIG{CHLD} = "IGNORE";
$SIG{TERM} = sub { exit 0 };
while (1) {
    my $socket = $server->accept or next;
    my $child = fork // die "fork: $!";
    if ($child) {
        close $socket;
        next;
    }
    close $server;
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
    while (sysread $socket, my $bytes, 65536) {
        for (my $done = 0; $done < length $bytes;) {
            $done += syswrite($socket, $bytes, length($bytes) - $done, $done) // exit 0;
        }
    }
    exit 0;
}
