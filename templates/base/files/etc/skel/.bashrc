# Interactive bash of this user, after /etc/bash.bashrc.
case $- in *i*) ;; *) return ;; esac
HISTCONTROL=ignoreboth
HISTSIZE=1000
alias ls='ls --color=auto'
alias grep='grep --color=auto'
