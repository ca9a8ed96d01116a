// Starts as many programs as it is told, one after the other: Node gives each three ends of pairs as its standard streams.
const { spawn } = require("child_process");

const answers = [];

function start(left) {
  if (!left) return console.log(JSON.stringify(answers));
  const program = spawn("cat");
  let said = "";
  program.stdout.on("data", (part) => (said += part));
  program.on("close", () => {
    answers.push(said);
    start(left - 1);
  });
  program.stdin.end("hello");
}

start(+process.argv[2]);
