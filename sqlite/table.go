package sqlite

import (
	"database/sql"
	"strings"
)

// table is a name and the columns that are written and read, the primary key first.
type table struct {
	name    string
	columns []string
}

// put inserts a row or changes, in its place, that with the same key.
func (t table) put() string {
	var set []string
	for _, c := range t.columns[1:] {
		set = append(set, c+" = excluded."+c)
	}
	return "INSERT INTO " + t.name + " (" + strings.Join(t.columns, ", ") + ")" +
		" VALUES (?" + strings.Repeat(", ?", len(t.columns)-1) + ")" +
		" ON CONFLICT (" + t.columns[0] + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// all selects every row, in no order: to sort afterwards is cheaper than to look up
// each row by an index.
func (t table) all() string { return "SELECT " + strings.Join(t.columns, ", ") + " FROM " + t.name }

func (t table) one() string { return t.all() + t.where() }

func (t table) drop() string { return "DELETE FROM " + t.name + t.where() }

func (t table) where() string { return " WHERE " + t.columns[0] + " = ?" }

// statements are those of a table, prepared. They end with their connection.
type statements struct{ put, drop, one, all *sql.Stmt }

// queries says which statement goes where.
func (t table) queries(s *statements) map[string]**sql.Stmt {
	return map[string]**sql.Stmt{t.put(): &s.put, t.drop(): &s.drop, t.one(): &s.one, t.all(): &s.all}
}
