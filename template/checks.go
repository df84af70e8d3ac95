package template

import (
	"context"
	"fmt"
	"strings"

	"cubesandbox/internal/progress"
)

// checkScript runs $2… as user $1 in a read-only view of the root file system
// that is the working directory. Its mounts end with its mount namespace.
const checkScript = `set -eu
user=$1 uid=$2 command=$3
mount --bind . .
cd "$PWD"
mount -o remount,bind,ro .
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
exec chroot --userspec="$uid:$uid" . /usr/bin/env -i HOME="/home/$user" USER="$user" LOGNAME="$user" \
	PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 /bin/sh -c 'cd "$HOME" && exec /bin/sh -c "$1"' sh "$command"
`

// runChecks runs the definition's checks in the folder root.
func runChecks(ctx context.Context, def *Definition, root string, report *progress.Reporter) error {
	step := report.Begin("check")
	step.Grow(len(def.Checks))
	for _, command := range def.Checks {
		var said []string
		err := contained(ctx, nil, func(line string) { said = append(said, line) },
			"sh", "-c", `cd "$1" && shift && exec sh -c "$@"`, "sh", root,
			checkScript, "check", def.User.Name, fmt.Sprint(def.User.UID), command)
		if err != nil {
			err = def.wrong("", "checks", "%q fails in the finished file system: %s", command, lastWords(err, said))
			step.Fail(err)
			return err
		}
		step.Add(1)
	}
	step.Done(fmt.Sprintf("%d of %d hold", len(def.Checks), len(def.Checks)))
	return nil
}

func lastWords(err error, said []string) string {
	if len(said) == 0 {
		return strings.TrimSuffix(err.Error(), "; its last words:\n    ")
	}
	return strings.Join(said, "; ")
}
