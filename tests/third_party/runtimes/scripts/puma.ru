# GET /N gives N bytes, a POST what was sent, and /parts in chunks.
class Parts
  def each
    20.times { |n| yield "x" * n * 100 }
  end
end

run lambda { |env|
  body =
    if env["REQUEST_METHOD"] == "POST" then [env["rack.input"].read]
    elsif env["PATH_INFO"] == "/parts" then Parts.new
    else ["x" * env["PATH_INFO"].delete("/").to_i]
    end
  [200, { "Content-Type" => "text/plain" }, body]
}
