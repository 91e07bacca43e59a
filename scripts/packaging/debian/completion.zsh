#compdef cleat
# Completion of cleat for zsh.
_cleat() {
    local -a found
    found=(${(f)"$(cleat __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
if [[ $funcstack[1] == _cleat ]]; then _cleat "$@"; else compdef _cleat cleat; fi
