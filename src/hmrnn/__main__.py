from hmrnn.cli import main

main()
