# Net::HTTP with a connection that is kept.
require "net/http"

$stdout.sync = true
http = Net::HTTP.start("127.0.0.1", ARGV[0].to_i)
puts "get #{(0...300).sum { |n| http.get("/#{n * 100}").body.bytesize }}"
puts "parts #{http.get("/parts").body.bytesize}"
puts "post #{http.post("/", "x" * 5_000_000).body.bytesize}"
puts "idle"
$stdin.gets
puts http.get("/5").body.bytesize
http.finish
puts "done"
