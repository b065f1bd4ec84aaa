"""Writes log.csv: what 400 customers of an invented shop did and when, in tasks of four kinds."""

import csv
import random

TASKS = {
    "buy": ["search", "look", "cart", "pay", "ship"],
    "return": ["orders", "return", "print", "drop"],
    "ask": ["help", "chat", "rate"],
    "move": ["account", "street", "town", "save"],
}


def main() -> None:
    draw = random.Random(1)
    with open("log.csv", "w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["time", "user", "event"])
        for user in range(400):
            now = 0.0
            for _ in range(draw.randint(6, 12)):
                now += draw.expovariate(1 / 60)  # a wait alone tells little of where a task ends
                for event in TASKS[draw.choice(list(TASKS))]:
                    for _ in range(draw.randint(1, 3) if event == "look" else 1):
                        write.writerow([round(now, 1), f"user-{user}", event])
                        now += draw.expovariate(1 / 30)


if __name__ == "__main__":
    main()
