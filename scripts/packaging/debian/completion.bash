# Completion of cleat for bash.
_cleat() {
    local IFS=$'\n'
    COMPREPLY=($(cleat __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; fi
}
complete -o default -F _cleat cleat
