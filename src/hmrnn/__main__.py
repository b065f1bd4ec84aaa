from hmrnn.cli.main import main

main()
