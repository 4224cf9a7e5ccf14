mod faulty;
mod memory;
mod model;
mod sqlite;
mod sqlite_file;
