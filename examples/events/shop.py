"""Writes log.csv: what 400 visitors of an invented shop did and when, in visits that are drawn from four kinds."""

import csv
import random

VISITS = {
    "buy": ["open", "search", "look", "look", "cart", "pay", "close"],
    "browse": ["open", "look", "look", "look", "close"],
    "return": ["login", "orders", "return", "print", "logout"],
    "ask": ["login", "help", "chat", "rate", "logout"],
}


def main() -> None:
    draw = random.Random(1)
    with open("log.csv", "w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["time", "user", "event"])
        for user in range(400):
            now = 0.0
            for _ in range(draw.randint(6, 12)):
                now += draw.expovariate(1 / 60)  # so that a wait alone tells little of where a visit ends
                for event in VISITS[draw.choice(list(VISITS))]:
                    for _ in range(draw.randint(1, 3) if event == "look" else 1):
                        write.writerow([round(now, 1), f"user-{user}", event])
                        now += draw.expovariate(1 / 30)


if __name__ == "__main__":
    main()
