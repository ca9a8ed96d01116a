# Asks an echo server by perl's kinds of calls: buffered, sysread, select, a signal, a fork.
use strict;
use warnings;
use Digest::MD5;
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

STDOUT->autoflush(1);

sub connected {
    my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]) or die "connect: $!";
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
    $socket->autoflush(1);
    ask($socket, 300);
    return $socket;
}

sub ask {
    my ($socket, $rounds) = @_;
    for my $n (0 .. $rounds - 1) {
        my $sent = chr($n % 256) x (1 + $n * 7);
        print $socket $sent;
        my $count = read $socket, my $got, length $sent;
        $count == length $sent && $got eq $sent or die "round $n";
    }
}

my $socket = connected();
my $sent = Digest::MD5->new;
my $got = Digest::MD5->new;
my $child = fork // die "fork: $!";
if (!$child) {
    print $socket chr($_ % 256) x ($_ * 997) for 1 .. 200;
    $socket->flush;
    shutdown $socket, 1;
    exit 0;
}
$sent->add(chr($_ % 256) x ($_ * 997)) for 1 .. 200;
while (sysread $socket, my $bytes, 30_000) {
    $got->add($bytes);
}
waitpid $child, 0;
print "stream ", ($sent->hexdigest eq $got->hexdigest), " $?\n";
close $socket;

$socket = connected();
my $select = IO::Select->new($socket);
print "waits ", $select->can_read(0.03) + 0, "\n";
$SIG{ALRM} = sub { print "alarm\n" };
alarm 1;
my $bytes = "";
print "read ", sysread($socket, $bytes, 1) // "interrupted: $!", "\n";
$socket->blocking(0);
print "read ", sysread($socket, $bytes, 1) // "$!", "\n";
syswrite $socket, "x" x 5;
print "can be read ", scalar($select->can_read(20)), " ", scalar(sysread $socket, $bytes, 10), "\n";
$socket->blocking(1);
eval {
    local $SIG{ALRM} = sub { die "timed out\n" };
    alarm 1;
    my $line = <$socket>;
};
print "line: $@";
close $socket;

my $kept = connected();
print "idle\n";
<STDIN>;
ask($kept, 1);
print "done\n";
