# Completion of cleat for fish.
complete -c cleat -a '(cleat __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
