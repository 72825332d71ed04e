"""What holds for the project as a whole: its build file, its layers, its packaging."""
