from wingbeat.cli import main

main()
