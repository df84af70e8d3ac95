# Login shells of this user, after /etc/profile.
[ -d "$HOME/bin" ] && PATH="$HOME/bin:$PATH"
[ -d "$HOME/.local/bin" ] && PATH="$HOME/.local/bin:$PATH"
[ -n "${BASH_VERSION:-}" ] && [ -r "$HOME/.bashrc" ] && . "$HOME/.bashrc"
true
