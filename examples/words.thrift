service Words {
    void ping(),
    map<string, i32> count(1: string text),
}
