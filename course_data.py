"""The former name of `data_scripts`."""

raise SystemExit("course_data is now data_scripts: use that name, or run `make data`.")
