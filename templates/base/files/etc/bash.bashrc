# For interactive bash; starts no process either.
[ -z "${PS1:-}" ] && return
shopt -s checkwinsize
if [ "$EUID" -eq 0 ]; then
	PS1='\u@\h:\w# '
else
	PS1='\u@\h:\w\$ '
fi
